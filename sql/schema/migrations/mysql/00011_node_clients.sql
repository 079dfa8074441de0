-- +goose Up
-- The clients of job types that a node has, by name with commas between them; '?': its worker is older and did not say.
ALTER TABLE capri_schedul_cluster ADD COLUMN clients VARCHAR(255) NOT NULL DEFAULT '?';

-- +goose Down
ALTER TABLE capri_schedul_cluster DROP COLUMN clients;
