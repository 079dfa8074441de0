-- +goose Up
-- Which question to the quality API the answer has to belong to: one that was revoked meanwhile opens no gate.
ALTER TABLE task_work ADD COLUMN quality_ask INT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE task_work DROP COLUMN quality_ask;
