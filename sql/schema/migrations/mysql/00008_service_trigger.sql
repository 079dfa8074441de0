-- +goose Up
-- Services that somebody asked to run now; whoever leads one deletes its row and runs it.
CREATE TABLE IF NOT EXISTS service_trigger (
  service      VARCHAR(64) NOT NULL PRIMARY KEY,
  triggered_at BIGINT      NOT NULL
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE IF EXISTS service_trigger;
