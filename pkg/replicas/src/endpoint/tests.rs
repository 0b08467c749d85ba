mod aggregators;
mod errors;
mod isolation;
mod limits;
mod list;
mod response_format;
