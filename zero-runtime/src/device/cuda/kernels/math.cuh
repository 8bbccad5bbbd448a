// Math: exponentials and what is made of them, by the polynomials of the processor's device, so that both give the same bits.
// Never calls the compiler's own functions of that kind, which round otherwise.
#pragma once

#include "prelude.cuh"
