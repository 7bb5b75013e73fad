// Congestion control's configuration as Python sees it.
#pragma once
#include "bindings/bindings.hpp"
#include "congestion/controllers.hpp"
