-- +goose Up
-- Workers. host is the node's name; beat is the counter that observers watch.
CREATE TABLE IF NOT EXISTS capri_schedul_cluster (
  host            VARCHAR(190) NOT NULL PRIMARY KEY,
  ip              VARCHAR(64)  NOT NULL,
  port            INT          NOT NULL,
  boot_id         VARCHAR(64)  NOT NULL,
  directory_id    VARCHAR(64)  NOT NULL, -- the node.id of its data directory
  pool            VARCHAR(64)  NOT NULL,
  slots           INT          NOT NULL,
  last_check_time BIGINT       NOT NULL,
  check_interval  INT          NOT NULL, -- seconds
  beat            BIGINT       NOT NULL,
  lost            TINYINT      NOT NULL,
  is_stop         TINYINT      NOT NULL, -- draining: takes nothing new
  stop_time       BIGINT       NULL,
  start_time      BIGINT       NOT NULL,
  memory          BIGINT       NOT NULL, -- MB in all
  cpu_load        DOUBLE       NOT NULL,
  memory_load     DOUBLE       NOT NULL, -- used share, 0 … 1
  disk_free       BIGINT       NOT NULL, -- MB
  task_num        INT          NOT NULL
);

-- Who may run which service now. epoch grows with each grant, renewals with each renewal.
CREATE TABLE IF NOT EXISTS capri_service_lock (
  service       VARCHAR(64)   NOT NULL PRIMARY KEY,
  holder        VARCHAR(190)  NOT NULL,
  epoch         BIGINT        NOT NULL,
  renewals      BIGINT        NOT NULL,
  acquired_at   BIGINT        NOT NULL,
  paused_reason VARCHAR(255)  NOT NULL DEFAULT '',
  paused_until  BIGINT        NULL,
  paused        TINYINT       NOT NULL DEFAULT 0,
  max_running   INT           NOT NULL DEFAULT -1, -- -1 no limit, 0 none
  triggered_at  BIGINT        NULL                 -- somebody asked for a run now
);

CREATE TABLE IF NOT EXISTS service_run (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  service     VARCHAR(64)   NOT NULL,
  epoch       BIGINT        NOT NULL,
  holder      VARCHAR(190)  NOT NULL,
  started_at  BIGINT        NOT NULL,
  duration_ms BIGINT        NOT NULL,
  counts      VARCHAR(512)  NOT NULL, -- JSON
  error       VARCHAR(1000) NOT NULL
);
CREATE INDEX IF NOT EXISTS service_run_service ON service_run (service, started_at);

-- The mark log with its ledger: a mark is complete when expected = made + present + skipped + failed.
CREATE TABLE IF NOT EXISTS generate_mark (
  period       TINYINT NOT NULL,
  mark         BIGINT  NOT NULL,
  expected     INT     NOT NULL,
  made         INT     NOT NULL,
  present      INT     NOT NULL,
  skipped      INT     NOT NULL,
  failed       INT     NOT NULL,
  complete     TINYINT NOT NULL,
  started_at   BIGINT  NOT NULL,
  completed_at BIGINT  NULL,
  PRIMARY KEY (period, mark)
);

-- Tasks that failed at a mark; tried again each 10 minutes and at each edit.
CREATE TABLE IF NOT EXISTS generate_failure (
  period   TINYINT       NOT NULL,
  mark     BIGINT        NOT NULL,
  task_id  BIGINT        NOT NULL,
  tries    INT           NOT NULL,
  next_try BIGINT        NOT NULL,
  error    VARCHAR(1000) NOT NULL,
  PRIMARY KEY (period, mark, task_id)
);

-- The due list: cron fires of the next minutes, not yet batches.
CREATE TABLE IF NOT EXISTS cron_due (
  task_id    BIGINT NOT NULL,
  fire       BIGINT NOT NULL,
  data_start BIGINT NOT NULL,
  PRIMARY KEY (task_id, fire)
);
CREATE INDEX IF NOT EXISTS cron_due_fire ON cron_due (fire);

-- How far each cron task's fires are in the due list or beyond it.
CREATE TABLE IF NOT EXISTS cron_planned (
  task_id       INTEGER NOT NULL PRIMARY KEY,
  planned_until BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS cron_planned_until ON cron_planned (planned_until);

-- +goose Down
DROP TABLE IF EXISTS cron_planned;
DROP TABLE IF EXISTS cron_due;
DROP TABLE IF EXISTS generate_failure;
DROP TABLE IF EXISTS generate_mark;
DROP TABLE IF EXISTS service_run;
DROP TABLE IF EXISTS capri_service_lock;
DROP TABLE IF EXISTS capri_schedul_cluster;
