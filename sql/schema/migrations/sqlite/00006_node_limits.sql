-- +goose Up
-- The limits that a node keeps by itself: masters call it lost only when these have passed for certain.
ALTER TABLE capri_schedul_cluster ADD COLUMN kill_after_ms BIGINT NOT NULL DEFAULT 150000; -- 0: it never kills its jobs by itself
ALTER TABLE capri_schedul_cluster ADD COLUMN kill_grace_ms BIGINT NOT NULL DEFAULT 10000;
ALTER TABLE capri_schedul_cluster ADD COLUMN lease_wait TINYINT NOT NULL DEFAULT 0; -- on_lease_lost: wait
ALTER TABLE capri_schedul_cluster ADD COLUMN clock_offset_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE capri_schedul_cluster ADD COLUMN lost_at BIGINT NULL;

-- +goose Down
ALTER TABLE capri_schedul_cluster DROP COLUMN lost_at;
ALTER TABLE capri_schedul_cluster DROP COLUMN clock_offset_ms;
ALTER TABLE capri_schedul_cluster DROP COLUMN lease_wait;
ALTER TABLE capri_schedul_cluster DROP COLUMN kill_grace_ms;
ALTER TABLE capri_schedul_cluster DROP COLUMN kill_after_ms;
