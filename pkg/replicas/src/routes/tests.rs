mod limits;
mod reads;
mod refusals;
mod shape;
