-- +goose Up
-- What dispatch does not place now: pauses (kind 1) of a group or a node, open breakers (kind 2) of a task or a group. The
-- pause of everything is in dispatch's row of capri_service_lock.
CREATE TABLE IF NOT EXISTS dispatch_stop (
  kind       INTEGER NOT NULL,
  scope      INTEGER NOT NULL, -- 1 group, 2 node, 3 task
  name       TEXT NOT NULL,
  task_id    INTEGER NOT NULL, -- of a task, else 0
  reason     TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  ends_at    INTEGER NULL,     -- NULL: until somebody ends it
  PRIMARY KEY (kind, scope, name)
);

-- How often a task has failed in a row, written only while the setting breaker_failures is above 0.
CREATE TABLE IF NOT EXISTS task_streak (
  task_id  INTEGER NOT NULL PRIMARY KEY,
  failures INTEGER NOT NULL,
  first_at INTEGER NOT NULL
);

-- run_now: somebody let it start without its conditions. params: JSON, the variables of this run alone.
ALTER TABLE task_work ADD COLUMN run_now INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task_work ADD COLUMN params TEXT;

-- +goose Down
ALTER TABLE task_work DROP COLUMN run_now;
ALTER TABLE task_work DROP COLUMN params;
DROP TABLE IF EXISTS task_streak;
DROP TABLE IF EXISTS dispatch_stop;
