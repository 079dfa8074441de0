-- +goose Up
-- Who is on duty: a row for each place of a rota. A rota has people who take turns of so many days from start_date on
-- ('alice,bob'), or weeks ('2026-11-16=alice,2026-11-23=bob').
CREATE TABLE IF NOT EXISTS duty (
  department VARCHAR(128) NOT NULL, -- empty: the system's
  place      VARCHAR(16)  NOT NULL, -- primary, secondary
  timezone   VARCHAR(64)  NOT NULL, -- by whose clock shifts change hands
  hand_over  VARCHAR(5)   NOT NULL, -- 09:00
  days       INT          NOT NULL, -- of a shift; 0 with weeks
  start_date VARCHAR(10)  NOT NULL, -- 2026-11-16; empty with weeks
  people     TEXT         NOT NULL,
  weeks      TEXT         NOT NULL,
  updated_at BIGINT       NOT NULL,
  PRIMARY KEY (department, place)
);

-- Who is on duty instead for a while. Of those that overlap the one with the greatest id counts.
CREATE TABLE IF NOT EXISTS duty_override (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  department VARCHAR(128) NOT NULL,
  place      VARCHAR(16)  NOT NULL,
  from_time  BIGINT       NOT NULL,
  to_time    BIGINT       NOT NULL, -- excluded
  user       VARCHAR(128) NOT NULL,
  reason     VARCHAR(255) NOT NULL,
  created_by VARCHAR(190) NOT NULL,
  created_at BIGINT       NOT NULL
);
CREATE INDEX IF NOT EXISTS duty_override_department ON duty_override (department, place, from_time);

-- Who is told of a task's alerts beside its owner's department.
CREATE TABLE IF NOT EXISTS task_alert_grant (
  task_id    BIGINT       NOT NULL,
  user       VARCHAR(128) NOT NULL,
  sms        TINYINT      NOT NULL,
  mail       TINYINT      NOT NULL,
  created_at BIGINT       NOT NULL,
  PRIMARY KEY (task_id, user)
);

-- +goose Down
DROP TABLE IF EXISTS task_alert_grant;
DROP TABLE IF EXISTS duty_override;
DROP TABLE IF EXISTS duty;
