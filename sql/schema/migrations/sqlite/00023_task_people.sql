-- +goose Up
-- Lists ask which tasks are somebody's.
CREATE INDEX IF NOT EXISTS task_group ON task (task_group);
CREATE INDEX IF NOT EXISTS task_owner ON task (owner);

-- +goose Down
DROP INDEX task_owner;
DROP INDEX task_group;
