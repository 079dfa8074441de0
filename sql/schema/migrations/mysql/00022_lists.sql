-- +goose Up
-- Answers that are given again to whoever repeats a request (see docs/api.md). id is SHA-256 of the caller and the key.
CREATE TABLE IF NOT EXISTS idempotency_key (
  id         VARCHAR(64) NOT NULL PRIMARY KEY,
  request    VARCHAR(64) NOT NULL, -- SHA-256 of operation and body
  status     INT         NOT NULL, -- 0: under way
  headers    TEXT        NOT NULL,
  body       MEDIUMBLOB  NULL,
  created_at BIGINT      NOT NULL,
  KEY idempotency_key_created (created_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The orders of lists of batches: what equals stands first, then schedule_time and the id, then what else is asked for
-- often, so that no row is read for it. Each costs at 00:01 and at every end, so there are few.
ALTER TABLE task_work
  ADD KEY task_work_finish_state (finish_state, schedule_time, id, task_id, latest),
  ADD KEY task_work_period (period, schedule_time, id, task_id, latest),
  DROP KEY task_work_schedule,
  ADD KEY task_work_schedule (schedule_time, id, task_id, latest),
  DROP KEY task_work_node,
  ADD KEY task_work_node (node, state, schedule_time, id, task_id, latest);

-- +goose Down
ALTER TABLE task_work
  DROP KEY task_work_node,
  ADD KEY task_work_node (node, state),
  DROP KEY task_work_schedule,
  ADD KEY task_work_schedule (schedule_time),
  DROP KEY task_work_period,
  DROP KEY task_work_finish_state;
DROP TABLE IF EXISTS idempotency_key;
