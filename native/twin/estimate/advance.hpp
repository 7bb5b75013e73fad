// Movement of a simulation to a later time by an estimate of what its queue pairs send until then. Times move
// with it, and so do the numbers of packets; queues, rates and all else stay as they are.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/fold.hpp"

namespace genie::twin {

// Takes down the counters of a simulation.
class Count final : public Fold {
 public:
  std::vector<std::uint64_t> take() { return std::move(counters_); }

  void moment(TimePs&) override {}
  void not_before(TimePs&, TimePs) override {}
  void after(TimePs&, TimePs) override {}
  void timer(TimePs&) override {}
  void own_time(TimePs&) override {}
  void latest(TimePs&) override {}
  void pending(TimePs time) override { horizon_ = std::min(horizon_, time); }
  void horizon(TimePs time) override { horizon_ = std::min(horizon_, time); }
  using Fold::base, Fold::relative, Fold::either;
  Base base(std::uint64_t value, std::uint64_t) override { return {value, value}; }
  std::uint64_t relative(const Base&, std::uint64_t value, std::uint64_t) override { return value; }
  std::uint64_t either(const Base&, std::uint64_t value, std::uint64_t) override { return value; }
  void left(std::uint64_t, std::uint64_t) override {}
  void total(std::uint64_t& value) override { counters_.push_back(value); }
  void total(std::int64_t& value) override { counters_.push_back(static_cast<std::uint64_t>(value)); }
  void odometer(std::uint32_t, std::uint64_t& value, std::uint64_t& skipped) override {
    counters_.push_back(value + skipped);
  }
  void reading(std::uint64_t&) override {}
  void rare(std::uint64_t& value) override { counters_.push_back(value); }
  void replayed(Replayed&) override {}
  bool replays() const override { return false; }
  void handle(std::uint64_t&) override {}
  // The next event that does not recur.
  TimePs horizon() const { return horizon_; }

 protected:
  void word(std::uint64_t) override {}

 private:
  std::vector<std::uint64_t> counters_;
  TimePs horizon_ = kNever;
};

// `packets`: by queue pair, that it sends meanwhile. Counters go on growing as they have between two counts
// of them, `of_growth` times as much.
class Advance final : public Fold {
 public:
  Advance(TimePs now, TimePs by, std::span<const std::uint32_t> packets,
          std::span<const std::uint64_t> earlier, std::span<const std::uint64_t> later, double of_growth)
      : now_(now), by_(by), packets_(packets), earlier_(earlier), later_(later), of_growth_(of_growth) {}

  // All counters have had their turn.
  bool is_over() const { return at_ == later_.size(); }

  void moment(TimePs& time) override { move(time); }
  void not_before(TimePs& time, TimePs slack) override {
    if (time == kNever || time + slack > now_) move(time);
  }
  void after(TimePs& time, TimePs) override { move(time); }
  void timer(TimePs& time) override { move(time); }
  void own_time(TimePs& time) override { move(time); }
  void latest(TimePs&) override {}
  void since(TimePs& time) override { move(time); }
  void horizon(TimePs) override {}
  void at_queue_pair(std::uint32_t id, std::uint32_t peer) override {
    id_ = id;
    peer_ = peer;
  }
  using Fold::base, Fold::relative, Fold::either, Fold::packets;
  Base base(std::uint64_t value, std::uint64_t) override { return {value, value}; }
  Base packets(std::uint64_t value, std::uint64_t mask, Way way) override {
    return {value, (value + packets_[way == Way::kSent ? id_ : peer_]) & mask};
  }
  std::uint64_t relative(const Base& to, std::uint64_t value, std::uint64_t mask) override {
    return (value + to.after - to.before) & mask;
  }
  // It belongs to a message that is in progress before and after.
  std::uint64_t either(const Base&, std::uint64_t value, std::uint64_t) override { return value; }
  void left(std::uint64_t, std::uint64_t) override {}
  void total(std::uint64_t& value) override { value += growth(); }
  void total(std::int64_t& value) override { value += static_cast<std::int64_t>(growth()); }
  void odometer(std::uint32_t, std::uint64_t&, std::uint64_t& skipped) override { skipped += growth(); }
  void reading(std::uint64_t&) override {}
  void rare(std::uint64_t& value) override { value += growth(); }
  void replayed(Replayed&) override {}
  bool replays() const override { return false; }
  void handle(std::uint64_t&) override {}

 protected:
  void word(std::uint64_t) override {}

 private:
  void move(TimePs& time) const {
    if (time != kNever) time += by_;
  }
  std::uint64_t growth() {
    const auto grown = static_cast<double>(later_[at_] - earlier_[at_]);
    ++at_;
    return static_cast<std::uint64_t>(std::llround(grown * of_growth_));
  }

  TimePs now_, by_;
  std::span<const std::uint32_t> packets_;
  std::span<const std::uint64_t> earlier_, later_;
  double of_growth_;
  std::size_t at_ = 0;
  std::uint32_t id_ = 0, peer_ = 0;
};

}  // namespace genie::twin
