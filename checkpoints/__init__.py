"""What happened: savers, the run ledger, the effect journal, approvals, leases, events, artifacts. Knows no node, no graph."""
