// optimizer.
