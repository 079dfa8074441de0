-- +goose Up
-- One run of a task for one data interval. state 0 waiting, 1 assigned, 2 running (start_time NULL: preparing),
-- 3 finished; finish_state 0 none, 1 success, 2 failed, 3 killed, 4 dependency timeout, 5 output timeout, 6 skipped.
CREATE TABLE IF NOT EXISTS task_work (
  id                    BIGINT        NOT NULL PRIMARY KEY,
  task_id               BIGINT        NOT NULL,
  task_version          INT           NOT NULL,
  period                TINYINT       NOT NULL,
  batch_no              VARCHAR(32)   NOT NULL,
  run_no                INT           NOT NULL,
  latest                TINYINT       NULL,
  origin                TINYINT       NOT NULL, -- 0 mark, 1 catch_up, 2 execute, 3 rerun, 4 cold_start
  schedule_time         BIGINT        NOT NULL,
  data_start            BIGINT        NOT NULL,
  data_end              BIGINT        NOT NULL,
  create_time           BIGINT        NOT NULL,
  state                 TINYINT       NOT NULL,
  finish_state          TINYINT       NOT NULL,
  unmet                 INT           NOT NULL, -- groups of conditions still unmet; recounted, never decremented
  kinds                 TINYINT       NOT NULL, -- which conditions there are: 1 paths, 2 third party, 4 parents
  held                  TINYINT       NOT NULL DEFAULT 0,
  kill_request          TINYINT       NOT NULL DEFAULT 0,
  node                  VARCHAR(190)  NOT NULL DEFAULT '',
  attempt               INT           NOT NULL DEFAULT 0,
  avoid_node            VARCHAR(190)  NOT NULL DEFAULT '',
  assign_time           BIGINT        NULL,
  start_time            BIGINT        NULL,
  finish_time           BIGINT        NULL,
  not_before            BIGINT        NOT NULL, -- earliest start, or the pause before a retry
  skip_at               BIGINT        NULL,     -- not started by then: skipped
  priority              INT           NOT NULL, -- 0 first
  slots                 INT           NOT NULL,
  memory_mb             INT           NOT NULL,
  concurrency           INT           NOT NULL,
  pool                  VARCHAR(64)   NOT NULL,
  strategy              VARCHAR(16)   NOT NULL,
  nodes                 TEXT          NULL,     -- names, one per line, where the task lists some
  account               VARCHAR(64)   NOT NULL DEFAULT '',
  quality_state         TINYINT       NOT NULL DEFAULT 0,
  failures              INT           NOT NULL DEFAULT 0,
  rejections            INT           NOT NULL DEFAULT 0,
  losses                INT           NOT NULL DEFAULT 0,
  dependency_timeout_at BIGINT        NULL,
  output_timeout_at     BIGINT        NULL,
  notified_at           BIGINT        NULL,
  actual_memory_mb      INT           NOT NULL DEFAULT 0,
  actual_processes      INT           NOT NULL DEFAULT 0,
  progress              INT           NOT NULL DEFAULT 0,
  application_id        VARCHAR(190)  NOT NULL DEFAULT '',
  message               VARCHAR(1000) NOT NULL DEFAULT '',
  UNIQUE KEY task_work_run (task_id, batch_no, run_no),
  UNIQUE KEY task_work_latest (task_id, batch_no, latest),
  KEY task_work_ready (state, unmet, priority, schedule_time),
  KEY task_work_node (node, state),
  KEY task_work_schedule (schedule_time)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- A batch's input (type 1) and output (type 2) paths; state 0 not there, 1 there. flag '' is the path itself.
CREATE TABLE IF NOT EXISTS task_data (
  batch_id  BIGINT        NOT NULL,
  type      TINYINT       NOT NULL,
  seq       INT           NOT NULL,
  state     TINYINT       NOT NULL,
  path_hash BIGINT        NOT NULL, -- of path and flag; the key would be too long
  path      VARCHAR(2048) NOT NULL,
  flag      VARCHAR(255)  NOT NULL,
  PRIMARY KEY (batch_id, type, seq),
  KEY task_data_path (type, state, path_hash)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE IF NOT EXISTS tthird_data (
  batch_id BIGINT       NOT NULL,
  seq      INT          NOT NULL,
  state    TINYINT      NOT NULL,
  code     VARCHAR(128) NOT NULL,
  period   TINYINT      NOT NULL,
  batch_no VARCHAR(32)  NOT NULL,
  PRIMARY KEY (batch_id, seq),
  KEY tthird_data_code (code, period, batch_no)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What third parties reported, the newest word for each code and interval: result 1 ready, 0 not ready or withdrawn.
CREATE TABLE IF NOT EXISTS tthird_item (
  code        VARCHAR(128) NOT NULL,
  period      TINYINT      NOT NULL,
  batch_no    VARCHAR(32)  NOT NULL,
  result      TINYINT      NOT NULL,
  said        VARCHAR(16)  NOT NULL, -- ready, fail, withdraw
  reported_at BIGINT       NOT NULL,
  reported_by VARCHAR(190) NOT NULL,
  PRIMARY KEY (code, period, batch_no)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Rows of one dependency share grp; policy 0: all are needed, 1: any one is enough.
CREATE TABLE IF NOT EXISTS tparent_data (
  batch_id        BIGINT      NOT NULL,
  seq             INT         NOT NULL,
  grp             INT         NOT NULL,
  policy          TINYINT     NOT NULL,
  state           TINYINT     NOT NULL,
  parent_task_id  BIGINT      NOT NULL,
  parent_batch_no VARCHAR(32) NOT NULL,
  PRIMARY KEY (batch_id, seq),
  KEY tparent_data_parent (parent_task_id, parent_batch_no)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What the dependency service has to look at next, written with the change itself: a parent's batch changed
-- (task_id, batch_no), a third party spoke (code, period, batch_no), batches were made (from_id … to_id).
CREATE TABLE IF NOT EXISTS dependency_change (
  id       BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  kind     TINYINT      NOT NULL, -- 1 parent, 2 third party, 3 new batches
  task_id  BIGINT       NOT NULL DEFAULT 0,
  batch_no VARCHAR(32)  NOT NULL DEFAULT '',
  code     VARCHAR(128) NOT NULL DEFAULT '',
  period   TINYINT      NOT NULL DEFAULT 0,
  from_id  BIGINT       NOT NULL DEFAULT 0,
  to_id    BIGINT       NOT NULL DEFAULT 0
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Append-only: each change of a batch after its birth, with who and why.
CREATE TABLE IF NOT EXISTS batch_event (
  id           BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  batch_id     BIGINT        NOT NULL,
  at           BIGINT        NOT NULL,
  state        TINYINT       NOT NULL,
  finish_state TINYINT       NOT NULL,
  attempt      INT           NOT NULL,
  node         VARCHAR(190)  NOT NULL,
  held         TINYINT       NOT NULL,
  kill_request TINYINT       NOT NULL,
  latest       TINYINT       NULL,
  epoch        BIGINT        NOT NULL,
  who          VARCHAR(190)  NOT NULL,
  why          VARCHAR(1000) NOT NULL,
  KEY batch_event_batch (batch_id)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The outbox. alert_key makes it one alert however often the cause is seen.
CREATE TABLE IF NOT EXISTS alert (
  id         BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  alert_key  VARCHAR(255)  NOT NULL,
  level      TINYINT       NOT NULL, -- 1 attention, 2 important, 3 severe
  kind       VARCHAR(64)   NOT NULL,
  task_id    BIGINT        NOT NULL,
  batch_id   BIGINT        NOT NULL,
  title      VARCHAR(255)  NOT NULL,
  body       TEXT          NOT NULL,
  created_at BIGINT        NOT NULL,
  UNIQUE KEY alert_key (alert_key),
  KEY alert_created (created_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS alert;
DROP TABLE IF EXISTS batch_event;
DROP TABLE IF EXISTS dependency_change;
DROP TABLE IF EXISTS tparent_data;
DROP TABLE IF EXISTS tthird_item;
DROP TABLE IF EXISTS tthird_data;
DROP TABLE IF EXISTS task_data;
DROP TABLE IF EXISTS task_work;
