// Step: the words of a step, as the host has them.
#pragma once

// What the host says about a step.
struct Hyper {
    double lr, beta1, beta2, momentum, epsilon, weight_decay, clip, correction1, correction2;
};

// What a step came to.
struct Report {
    double loss, gradient_norm, grad_scale, is_finite;
};
