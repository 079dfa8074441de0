-- +goose Up
-- Answers that are given again to whoever repeats a request (see docs/api.md). id is SHA-256 of the caller and the key.
CREATE TABLE IF NOT EXISTS idempotency_key (
  id         VARCHAR(64) NOT NULL PRIMARY KEY,
  request    VARCHAR(64) NOT NULL, -- SHA-256 of operation and body
  status     INT         NOT NULL, -- 0: under way
  headers    TEXT        NOT NULL,
  body       BLOB        NULL,
  created_at BIGINT      NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_key_created ON idempotency_key (created_at);

-- The orders of lists of batches: what equals stands first, then schedule_time and the id, then what else is asked for
-- often, so that no row is read for it. Each costs at 00:01 and at every end, so there are few.
CREATE INDEX IF NOT EXISTS task_work_finish_state ON task_work (finish_state, schedule_time, id, task_id, latest);
CREATE INDEX IF NOT EXISTS task_work_period ON task_work (period, schedule_time, id, task_id, latest);
DROP INDEX IF EXISTS task_work_schedule;
CREATE INDEX task_work_schedule ON task_work (schedule_time, id, task_id, latest);
DROP INDEX IF EXISTS task_work_node;
CREATE INDEX task_work_node ON task_work (node, state, schedule_time, id, task_id, latest);

-- +goose Down
DROP INDEX task_work_node;
CREATE INDEX task_work_node ON task_work (node, state);
DROP INDEX task_work_schedule;
CREATE INDEX task_work_schedule ON task_work (schedule_time);
DROP INDEX task_work_period;
DROP INDEX task_work_finish_state;
DROP TABLE idempotency_key;
