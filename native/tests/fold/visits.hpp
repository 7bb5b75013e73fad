// Number of fields of each kind that a fold visits. A fold that leaves one out visits fewer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/fold.hpp"

namespace genie::test {

class Visits : public Fold {
 public:
  std::string text() const {
    const auto part = [](const char* name, std::size_t count) {
      return count == 0 ? std::string() : std::string(name) + " " + std::to_string(count) + ", ";
    };
    const std::string all = part("exact", exact_) + part("time", times_) + part("base", bases_) +
                            part("relative", relatives_) + part("total", totals_) + part("rare", rare_) +
                            part("latest", latest_) + part("either", either_) + part("left", left_) +
                            part("horizon", horizons_) + part("replayed", replayed_);
    return all.substr(0, all.empty() ? 0 : all.size() - 2);
  }

  void moment(TimePs&) override { ++times_; }
  void not_before(TimePs&, TimePs) override { ++times_; }
  void after(TimePs&, TimePs) override { ++times_; }
  void timer(TimePs&) override { ++times_; }
  void own_time(TimePs&) override { ++times_; }
  void pending(TimePs) override { ++times_; }
  void latest(TimePs&) override { ++latest_; }
  void horizon(TimePs) override { ++horizons_; }
  using Fold::base, Fold::relative, Fold::either;
  Base base(std::uint64_t value, std::uint64_t) override {
    ++bases_;
    return {value, value};
  }
  std::uint64_t relative(const Base&, std::uint64_t value, std::uint64_t) override {
    ++relatives_;
    return value;
  }
  std::uint64_t either(const Base&, std::uint64_t value, std::uint64_t) override {
    ++either_;
    return value;
  }
  void left(std::uint64_t, std::uint64_t) override { ++left_; }
  void total(std::uint64_t&) override { ++totals_; }
  void total(std::int64_t&) override { ++totals_; }
  void rare(std::uint64_t&) override { ++rare_; }
  void handle(std::uint64_t&) override { ++relatives_; }
  void replayed(Replayed& part) override {
    ++replayed_;
    part.fold(*this);
  }

 protected:
  void word(std::uint64_t) override { ++exact_; }

 private:
  std::size_t exact_ = 0, times_ = 0, bases_ = 0, relatives_ = 0, totals_ = 0, rare_ = 0, latest_ = 0,
              either_ = 0, left_ = 0, horizons_ = 0, replayed_ = 0;
};

}  // namespace genie::test
