// A window that never changes: what many deployments of RoCE have beside a rate.
#pragma once
#include "congestion/controller.hpp"

namespace genie::congestion {

struct FixedWindowConfig {
  std::int64_t window_bytes = 0;  // 0: the bandwidth-delay product
  friend bool operator==(const FixedWindowConfig&, const FixedWindowConfig&) = default;
};

class FixedWindow final : public Controller {
 public:
  explicit FixedWindow(std::int64_t window_bytes) { window_bytes_ = window_bytes; }
};

}  // namespace genie::congestion
