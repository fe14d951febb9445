// The scalar functions of elementwise ops, namespace ortisan::fn, on compute types (float, double, integers, bool).
//
// None has a branch in its float version, so a loop that calls them vectorises; fmod and mod are the exceptions.
#pragma once

#include "activation.h"
#include "arithmetic.h"
#include "elementary.h"
#include "error_function.h"
#include "power.h"
#include "trigonometry.h"
