// Step: the words of a step, laid out as on the host.
#pragma once

// The host's numbers for a step.
struct Hyper {
    double lr, beta1, beta2, momentum, epsilon, weight_decay, clip, correction1, correction2;
};

// The outcome of a step.
struct Report {
    double loss, gradient_norm, grad_scale, is_finite;
};
