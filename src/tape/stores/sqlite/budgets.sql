-- Budgets: what runs may spend and have spent.

-- name: load_budgets
-- Rows by key, for a batch to decide on.
SELECT
  run_id, usd_cap, token_cap, usd_spent, tokens_spent, last_charge
FROM tape_budgets
WHERE run_id IN (
  SELECT value ->> 0 FROM json_each(?));

-- name: save_budgets
-- Write one row, new or changed.
INSERT INTO tape_budgets (
  run_id, usd_cap, token_cap, usd_spent, tokens_spent, last_charge)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET
  usd_cap = excluded.usd_cap,
  token_cap = excluded.token_cap,
  usd_spent = excluded.usd_spent,
  tokens_spent = excluded.tokens_spent,
  last_charge = excluded.last_charge;

-- name: get_budget
-- A run's budget.
SELECT
  run_id, usd_cap, token_cap, usd_spent, tokens_spent, last_charge
FROM tape_budgets
WHERE run_id = ?;
