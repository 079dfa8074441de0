-- +goose Up
-- People and rights. Times everywhere: epoch milliseconds, UTC. Names compare byte by byte.
CREATE TABLE IF NOT EXISTS department (
  name       VARCHAR(128) NOT NULL PRIMARY KEY,
  title      VARCHAR(190) NOT NULL DEFAULT '',
  created_at BIGINT       NOT NULL
);

CREATE TABLE IF NOT EXISTS user (
  name       VARCHAR(128) NOT NULL PRIMARY KEY,
  department VARCHAR(128) NOT NULL DEFAULT '',
  mail       VARCHAR(190) NOT NULL DEFAULT '',
  phone      VARCHAR(64)  NOT NULL DEFAULT '',
  enabled    TINYINT      NOT NULL DEFAULT 1,
  created_at BIGINT       NOT NULL
);

-- Which owner (kind 'user') or department (kind 'department') may run jobs as which system account.
CREATE TABLE IF NOT EXISTS account_grant (
  account    VARCHAR(64)  NOT NULL,
  kind       VARCHAR(16)  NOT NULL,
  name       VARCHAR(128) NOT NULL,
  created_at BIGINT       NOT NULL,
  PRIMARY KEY (account, kind, name)
);

-- API clients. key_hash is SHA-256 of a random 256-bit key; the key itself is shown once and never stored.
CREATE TABLE IF NOT EXISTS app (
  name       VARCHAR(128) NOT NULL PRIMARY KEY,
  role       VARCHAR(32)  NOT NULL,
  key_hash   VARCHAR(64)  NOT NULL,
  enabled    TINYINT      NOT NULL DEFAULT 1,
  created_at BIGINT       NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS app_key ON app (key_hash);

-- Every change made by a person or an app.
CREATE TABLE IF NOT EXISTS action_log (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     BIGINT        NOT NULL,
  who    VARCHAR(190)  NOT NULL,
  action VARCHAR(64)   NOT NULL,
  target VARCHAR(255)  NOT NULL,
  detail TEXT          NOT NULL
);
CREATE INDEX IF NOT EXISTS action_log_at ON action_log (at);

-- Settings that change while Capri runs; timezone is fixed at migration.
CREATE TABLE IF NOT EXISTS dic_data (
  name  VARCHAR(128) NOT NULL PRIMARY KEY,
  value VARCHAR(512) NOT NULL
);

-- Ids are reserved in blocks, so that a multi-row insert knows the ids it writes.
CREATE TABLE IF NOT EXISTS id_block (
  name    VARCHAR(64) NOT NULL PRIMARY KEY,
  next_id BIGINT      NOT NULL
);

-- 'definitions' is the lock under which definitions change.
INSERT INTO id_block (name, next_id) VALUES ('task', 1), ('batch', 1), ('definitions', 1);

-- The newest version of each task. definition is the task file's content as JSON.
CREATE TABLE IF NOT EXISTS task (
  id               INTEGER       NOT NULL PRIMARY KEY,
  name             VARCHAR(128) NOT NULL,
  version          INT          NOT NULL,
  task_group       VARCHAR(128) NOT NULL,
  owner            VARCHAR(128) NOT NULL,
  output_period    INT          NOT NULL, -- 2 hour, 3 day, 4 month, 5 week, 6 cron, 7 manual
  cron_expression  VARCHAR(255) NOT NULL,
  task_begin_time  INT          NOT NULL, -- minutes after the mark, -1 not set
  check_type       VARCHAR(16)  NOT NULL,
  priority         INT          NOT NULL,
  enabled          TINYINT      NOT NULL,
  valid_from       BIGINT       NOT NULL, -- 0 open
  valid_to         BIGINT       NOT NULL, -- 0 open
  first_mark       BIGINT       NOT NULL, -- intervals with earlier marks are not waited for
  definition       TEXT         NOT NULL,
  expected_minutes INT          NOT NULL DEFAULT 0,
  app              VARCHAR(128) NOT NULL DEFAULT '',
  submitter        VARCHAR(190) NOT NULL DEFAULT '',
  created_at       BIGINT       NOT NULL,
  updated_at       BIGINT       NOT NULL,
  deleted_at       BIGINT       NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS task_name ON task (name);
CREATE INDEX IF NOT EXISTS task_period ON task (output_period, enabled);

-- Every version there ever was; rows never change. A batch runs and is judged by (task_id, task_version).
CREATE TABLE IF NOT EXISTS task_history (
  task_id       BIGINT       NOT NULL,
  version       INT          NOT NULL,
  output_period INT          NOT NULL,
  enabled       TINYINT      NOT NULL,
  deleted       TINYINT      NOT NULL,
  valid_from    BIGINT       NOT NULL,
  valid_to      BIGINT       NOT NULL,
  definition    TEXT         NOT NULL,
  changed_at    BIGINT       NOT NULL,
  changed_by    VARCHAR(190) NOT NULL,
  PRIMARY KEY (task_id, version)
);

-- The edges of the newest versions, for "who waits for it".
CREATE TABLE IF NOT EXISTS task_parent (
  task_id        BIGINT NOT NULL,
  parent_task_id BIGINT NOT NULL,
  PRIMARY KEY (task_id, parent_task_id)
);
CREATE INDEX IF NOT EXISTS task_parent_parent ON task_parent (parent_task_id);

-- +goose Down
DROP TABLE IF EXISTS task_parent;
DROP TABLE IF EXISTS task_history;
DROP TABLE IF EXISTS task;
DROP TABLE IF EXISTS id_block;
DROP TABLE IF EXISTS dic_data;
DROP TABLE IF EXISTS action_log;
DROP TABLE IF EXISTS app;
DROP TABLE IF EXISTS account_grant;
DROP TABLE IF EXISTS user;
DROP TABLE IF EXISTS department;
