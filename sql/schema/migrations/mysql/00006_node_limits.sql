-- +goose Up
-- The limits that a node keeps by itself: masters call it lost only when these have passed for certain.
-- One statement, so that an interrupted migration has done all of it or nothing.
ALTER TABLE capri_schedul_cluster
  ADD COLUMN kill_after_ms BIGINT NOT NULL DEFAULT 150000, -- 0: it never kills its jobs by itself
  ADD COLUMN kill_grace_ms BIGINT NOT NULL DEFAULT 10000,
  ADD COLUMN lease_wait TINYINT NOT NULL DEFAULT 0, -- on_lease_lost: wait
  ADD COLUMN clock_offset_ms BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN lost_at BIGINT NULL;

-- +goose Down
ALTER TABLE capri_schedul_cluster
  DROP COLUMN lost_at, DROP COLUMN clock_offset_ms, DROP COLUMN lease_wait, DROP COLUMN kill_grace_ms, DROP COLUMN kill_after_ms;
