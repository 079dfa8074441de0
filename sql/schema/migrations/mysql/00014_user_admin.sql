-- +goose Up
-- Admins are told of trouble of the system.
ALTER TABLE user ADD COLUMN admin TINYINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE user DROP COLUMN admin;
