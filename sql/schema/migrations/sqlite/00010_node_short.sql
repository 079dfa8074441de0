-- +goose Up
-- What a node is short of, in its own words, and takes nothing for; '' is nothing.
ALTER TABLE capri_schedul_cluster ADD COLUMN short_of VARCHAR(255) NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE capri_schedul_cluster DROP COLUMN short_of;
