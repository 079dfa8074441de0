-- +goose Up
-- Services that somebody asked to run now; whoever leads one deletes its row and runs it.
CREATE TABLE IF NOT EXISTS service_trigger (
  service      TEXT    NOT NULL PRIMARY KEY,
  triggered_at INTEGER NOT NULL
);

-- +goose Down
DROP TABLE IF EXISTS service_trigger;
