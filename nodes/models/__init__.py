"""One model reply: its wire, retries and fallbacks, what it cost, and a scripted model to run without a key."""
