-- +goose Up
ALTER TABLE task_work_archive ADD COLUMN run_now INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task_work_archive ADD COLUMN params TEXT;

-- +goose Down
ALTER TABLE task_work_archive DROP COLUMN run_now;
ALTER TABLE task_work_archive DROP COLUMN params;
