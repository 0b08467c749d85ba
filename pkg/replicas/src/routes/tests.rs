mod aggregators;
mod limits;
mod reads;
mod refusals;
mod shape;
