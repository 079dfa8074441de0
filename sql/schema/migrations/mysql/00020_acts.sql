-- +goose Up
-- What dispatch does not place now: pauses (kind 1) of a group or a node, open breakers (kind 2) of a task or a group. The
-- pause of everything is in dispatch's row of capri_service_lock.
CREATE TABLE IF NOT EXISTS dispatch_stop (
  kind       TINYINT NOT NULL,
  scope      TINYINT NOT NULL, -- 1 group, 2 node, 3 task
  name       VARCHAR(190) NOT NULL,
  task_id    BIGINT NOT NULL, -- of a task, else 0
  reason     VARCHAR(255) NOT NULL,
  created_by VARCHAR(190) NOT NULL,
  created_at BIGINT NOT NULL,
  ends_at    BIGINT NULL,     -- NULL: until somebody ends it
  PRIMARY KEY (kind, scope, name)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- How often a task has failed in a row, written only while the setting breaker_failures is above 0.
CREATE TABLE IF NOT EXISTS task_streak (
  task_id  BIGINT NOT NULL PRIMARY KEY,
  failures INT NOT NULL,
  first_at BIGINT NOT NULL
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- run_now: somebody let it start without its conditions. params: JSON, the variables of this run alone.
ALTER TABLE task_work ADD COLUMN run_now TINYINT NOT NULL DEFAULT 0, ADD COLUMN params TEXT NULL;

-- +goose Down
ALTER TABLE task_work DROP COLUMN run_now, DROP COLUMN params;
DROP TABLE IF EXISTS task_streak;
DROP TABLE IF EXISTS dispatch_stop;
