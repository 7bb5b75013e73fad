// Shared by the binding files.
#pragma once
#include <nanobind/nanobind.h>

namespace nb = nanobind;
