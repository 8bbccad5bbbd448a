use zero_study::expand::step::*; pub fn step(_: &mut impl StepOps) {} pub fn evaluation(_: &mut impl StepOps) {}
