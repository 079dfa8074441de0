-- +goose Up
-- estimate: what a campaign takes by itself, as its preview says, JSON.
ALTER TABLE campaign ADD COLUMN estimate TEXT NULL;

-- +goose Down
ALTER TABLE campaign DROP COLUMN estimate;
