//! Runs that are ended from outside, and restarted: before and after each system call of a save, and by faults of ranks and of the
//! launcher. In every case, they finish with the states and the losses of an undisturbed run, to the bit.

mod faults;
mod kill;
mod survivor;
mod trace;
