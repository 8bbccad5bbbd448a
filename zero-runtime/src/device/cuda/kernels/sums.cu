// sums.
