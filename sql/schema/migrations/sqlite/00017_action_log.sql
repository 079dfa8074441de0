-- +goose Up
-- Who did what from where, and what it was before and is after.
ALTER TABLE action_log ADD COLUMN kind        VARCHAR(16)  NOT NULL DEFAULT ''; -- user, app, worker, job; link, of a message; empty: Capri itself
ALTER TABLE action_log ADD COLUMN address     VARCHAR(64)  NOT NULL DEFAULT '';
ALTER TABLE action_log ADD COLUMN request_id  VARCHAR(64)  NOT NULL DEFAULT '';
ALTER TABLE action_log ADD COLUMN task_id     BIGINT       NOT NULL DEFAULT 0;
ALTER TABLE action_log ADD COLUMN department  VARCHAR(128) NOT NULL DEFAULT ''; -- whose it was that was changed, where that is no task
ALTER TABLE action_log ADD COLUMN before_json MEDIUMTEXT   NULL;
ALTER TABLE action_log ADD COLUMN after_json  MEDIUMTEXT   NULL;
CREATE INDEX action_log_who ON action_log (who, id);
CREATE INDEX action_log_action ON action_log (action, id);
CREATE INDEX action_log_target ON action_log (target, id);
CREATE INDEX action_log_task ON action_log (task_id, id);
-- What was logged stays. `capri migrate clean` takes the triggers away for as long as it works.
-- +goose StatementBegin
CREATE TRIGGER action_log_no_update BEFORE UPDATE ON action_log BEGIN SELECT RAISE(ABORT, 'action_log is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER action_log_no_delete BEFORE DELETE ON action_log BEGIN SELECT RAISE(ABORT, 'action_log is append-only'); END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER action_log_no_delete;
DROP TRIGGER action_log_no_update;
DROP INDEX action_log_task;
DROP INDEX action_log_target;
DROP INDEX action_log_action;
DROP INDEX action_log_who;
ALTER TABLE action_log DROP COLUMN after_json;
ALTER TABLE action_log DROP COLUMN before_json;
ALTER TABLE action_log DROP COLUMN department;
ALTER TABLE action_log DROP COLUMN task_id;
ALTER TABLE action_log DROP COLUMN request_id;
ALTER TABLE action_log DROP COLUMN address;
ALTER TABLE action_log DROP COLUMN kind;
