-- +goose Up
ALTER TABLE task_work_archive ADD COLUMN run_now TINYINT NOT NULL DEFAULT 0, ADD COLUMN params TEXT NULL;

-- +goose Down
ALTER TABLE task_work_archive DROP COLUMN run_now, DROP COLUMN params;
