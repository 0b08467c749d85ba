//! Admission webhooks of DIJob and AggregatorConfig, and their certificates.
