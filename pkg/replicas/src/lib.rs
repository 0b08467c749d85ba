//! The replica endpoint that coordinators call.
