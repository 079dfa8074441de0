-- +goose Up
-- Who did what from where, and what it was before and is after. No trigger refuses UPDATE and DELETE here, as one does with SQLite: where
-- MySQL keeps a binary log, as it does by default, making a trigger needs SUPER. docs/access.md has the statements for an administrator.
ALTER TABLE action_log
  ADD COLUMN kind        VARCHAR(16)  NOT NULL DEFAULT '', -- user, app, worker, job; link, of a message; empty: Capri itself
  ADD COLUMN address     VARCHAR(64)  NOT NULL DEFAULT '',
  ADD COLUMN request_id  VARCHAR(64)  NOT NULL DEFAULT '',
  ADD COLUMN task_id     BIGINT       NOT NULL DEFAULT 0,
  ADD COLUMN department  VARCHAR(128) NOT NULL DEFAULT '', -- whose it was that was changed, where that is no task
  ADD COLUMN before_json MEDIUMTEXT   NULL,
  ADD COLUMN after_json  MEDIUMTEXT   NULL,
  ADD KEY action_log_who (who, id),
  ADD KEY action_log_action (action, id),
  ADD KEY action_log_target (target, id),
  ADD KEY action_log_task (task_id, id);

-- +goose Down
ALTER TABLE action_log DROP KEY action_log_who, DROP KEY action_log_action, DROP KEY action_log_target, DROP KEY action_log_task,
  DROP COLUMN kind, DROP COLUMN address, DROP COLUMN request_id, DROP COLUMN task_id, DROP COLUMN department, DROP COLUMN before_json, DROP COLUMN after_json;
