-- the bank's profile of each card; Debezium writes every change to the topic bank.public.card_profiles
CREATE TABLE IF NOT EXISTS card_profiles (
    card_id      text PRIMARY KEY CHECK (length(card_id) BETWEEN 1 AND 64),
    status       text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'blocked', 'closed')),
    home_country char(2) NOT NULL,
    currency     char(3) NOT NULL,
    credit_limit numeric(12, 2) NOT NULL CHECK (credit_limit >= 0),
    risk_tier    smallint NOT NULL DEFAULT 0 CHECK (risk_tier BETWEEN 0 AND 3),
    opened_on    date NOT NULL
);
