"""What tests share: helpers, stand-ins, and programs that tests run."""
