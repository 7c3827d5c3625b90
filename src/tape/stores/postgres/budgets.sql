-- Budgets: what runs may spend and have spent.

-- name: load_budgets
-- Rows by key, for a batch to decide on.
SELECT
  run_id, usd_cap, token_cap, usd_spent, tokens_spent, last_charge
FROM tape_budgets
JOIN unnest($1::text[]) AS wanted (run_id) USING (run_id);

-- name: save_budgets
-- Write rows, new or changed.
INSERT INTO tape_budgets (
  run_id, usd_cap, token_cap, usd_spent, tokens_spent, last_charge)
SELECT * FROM unnest(
  $1::text[], $2::double precision[], $3::bigint[], $4::double precision[], $5::bigint[],
  $6::text[])
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
WHERE run_id = $1;
