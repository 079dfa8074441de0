-- +goose Up
-- Masters. beat is the counter that observers watch; instance is new with each life of the process.
CREATE TABLE IF NOT EXISTS capri_master (
  name            VARCHAR(190) NOT NULL PRIMARY KEY,
  instance        VARCHAR(64)  NOT NULL,
  host            VARCHAR(190) NOT NULL,
  pid             INT          NOT NULL,
  listen          VARCHAR(190) NOT NULL,
  version         VARCHAR(64)  NOT NULL,
  beat            BIGINT       NOT NULL,
  last_check_time BIGINT       NOT NULL,
  start_time      BIGINT       NOT NULL,
  clock_offset_ms BIGINT       NOT NULL, -- its clock minus the database's
  stopped         TINYINT      NOT NULL  -- it left in order: nobody need wait for its beat
);

-- What each service did last and does next; services that share a lease have a row each.
CREATE TABLE IF NOT EXISTS service_state (
  service      VARCHAR(64)  NOT NULL PRIMARY KEY,
  holder       VARCHAR(190) NOT NULL,
  epoch        BIGINT       NOT NULL,
  started_at   BIGINT       NULL, -- of the newest turn
  completed_at BIGINT       NULL, -- of the newest turn that ended without an error
  duration_ms  BIGINT       NOT NULL,
  next_at      BIGINT       NULL,
  fired_at     BIGINT       NULL  -- the newest time of day whose turn has completed, for services that have such
);

-- What a node holds, as it says itself: "<batch id>.<attempt>", one a line.
CREATE TABLE IF NOT EXISTS node_inventory (
  host        VARCHAR(190) NOT NULL PRIMARY KEY,
  boot_id     VARCHAR(64)  NOT NULL,
  report      BIGINT       NOT NULL, -- counts the reports
  reported_at BIGINT       NOT NULL,
  attempts    TEXT         NOT NULL
);

-- Former assignments of batches that were given to another node (seed 002 §1.5).
CREATE TABLE IF NOT EXISTS capri_reschedule_log (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  batch_id    BIGINT        NOT NULL,
  task_id     BIGINT        NOT NULL,
  attempt     INT           NOT NULL,
  node        VARCHAR(190)  NOT NULL,
  assign_time BIGINT        NOT NULL,
  taken_at    BIGINT        NOT NULL, -- when it was taken from that node
  why         VARCHAR(1000) NOT NULL
);
CREATE INDEX IF NOT EXISTS capri_reschedule_log_node ON capri_reschedule_log (node, taken_at);
CREATE INDEX IF NOT EXISTS capri_reschedule_log_batch ON capri_reschedule_log (batch_id);

-- What has to be looked at when a time has passed: kind 1 dependency time-out, 2 output time-out, 3 end of the
-- business day. A row goes when it was looked at.
CREATE TABLE IF NOT EXISTS batch_deadline (
  due      BIGINT  NOT NULL,
  batch_id BIGINT  NOT NULL,
  kind     TINYINT NOT NULL,
  PRIMARY KEY (due, batch_id, kind)
) WITHOUT ROWID;

-- Finished batches that grew old, and their events. Existence, the next run_no and a parent's success are asked here, too.
CREATE TABLE IF NOT EXISTS task_work_archive (
  id                    INTEGER       NOT NULL PRIMARY KEY,
  task_id               BIGINT        NOT NULL,
  task_version          INT           NOT NULL,
  period                TINYINT       NOT NULL,
  batch_no              VARCHAR(32)   NOT NULL,
  run_no                INT           NOT NULL,
  latest                TINYINT       NULL,
  origin                TINYINT       NOT NULL,
  schedule_time         BIGINT        NOT NULL,
  data_start            BIGINT        NOT NULL,
  data_end              BIGINT        NOT NULL,
  create_time           BIGINT        NOT NULL,
  state                 TINYINT       NOT NULL,
  finish_state          TINYINT       NOT NULL,
  unmet                 INT           NOT NULL,
  kinds                 TINYINT       NOT NULL,
  held                  TINYINT       NOT NULL DEFAULT 0,
  kill_request          TINYINT       NOT NULL DEFAULT 0,
  node                  VARCHAR(190)  NOT NULL DEFAULT '',
  attempt               INT           NOT NULL DEFAULT 0,
  avoid_node            VARCHAR(190)  NOT NULL DEFAULT '',
  assign_time           BIGINT        NULL,
  start_time            BIGINT        NULL,
  finish_time           BIGINT        NULL,
  not_before            BIGINT        NOT NULL,
  skip_at               BIGINT        NULL,
  priority              INT           NOT NULL,
  slots                 INT           NOT NULL,
  memory_mb             INT           NOT NULL,
  concurrency           INT           NOT NULL,
  pool                  VARCHAR(64)   NOT NULL,
  strategy              VARCHAR(16)   NOT NULL,
  nodes                 TEXT          NULL,
  account               VARCHAR(64)   NOT NULL DEFAULT '',
  quality_state         TINYINT       NOT NULL DEFAULT 0,
  quality_ask           INT           NOT NULL DEFAULT 0,
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
  archived_at           BIGINT        NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS task_work_archive_run ON task_work_archive (task_id, batch_no, run_no);
CREATE INDEX IF NOT EXISTS task_work_archive_schedule ON task_work_archive (schedule_time);

CREATE TABLE IF NOT EXISTS batch_event_archive (
  id           INTEGER       NOT NULL PRIMARY KEY,
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
  why          VARCHAR(1000) NOT NULL
);
CREATE INDEX IF NOT EXISTS batch_event_archive_batch ON batch_event_archive (batch_id);

-- +goose Down
DROP TABLE IF EXISTS batch_event_archive;
DROP TABLE IF EXISTS task_work_archive;
DROP TABLE IF EXISTS batch_deadline;
DROP TABLE IF EXISTS capri_reschedule_log;
DROP TABLE IF EXISTS node_inventory;
DROP TABLE IF EXISTS service_state;
DROP TABLE IF EXISTS capri_master;
