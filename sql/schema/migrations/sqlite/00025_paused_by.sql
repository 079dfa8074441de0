-- +goose Up
-- Who paused everything, and since when; of other pauses dispatch_stop has it.
ALTER TABLE capri_service_lock ADD COLUMN paused_by VARCHAR(190) NOT NULL DEFAULT '';
ALTER TABLE capri_service_lock ADD COLUMN paused_at BIGINT NULL;

-- +goose Down
ALTER TABLE capri_service_lock DROP COLUMN paused_at;
ALTER TABLE capri_service_lock DROP COLUMN paused_by;
