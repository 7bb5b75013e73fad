// A gloo process group that reports its collectives to PyTorch's profiler and execution-trace observer.
//
// PyTorch's NCCL backend opens a `record_param_comms` record (collective, group, sizes, splits) around every
// collective. PyTorch's gloo backend does not, so a gloo trace does not say which group a collective belongs
// to. This wrapper opens the same record with PyTorch's own macro and hands the call on to gloo unchanged.
//
// The wrapper also passes a turn round. A rank computes only while it holds the lock of the turn file. It
// gives the lock up while it waits for a collective. So ranks that share cores are never time-sliced against
// each other. The durations of their operators are those of a rank that has a core to itself.

#include <fcntl.h>
#include <sys/file.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

namespace {

using c10d::Backend;
using c10d::Work;
using Tensors = std::vector<at::Tensor>;

int turn_fd = -1;

void turn(int operation) {
  if (turn_fd < 0) return;
  while (flock(turn_fd, operation) != 0) {
    TORCH_CHECK(errno == EINTR, "turn file: flock failed, errno ", errno);
  }
}

void take_turn(const std::string& path) {
  turn_fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  TORCH_CHECK(turn_fd >= 0, "turn file ", path, ": cannot be opened, errno ", errno);
  turn(LOCK_EX);
}

void give_turn() {
  turn(LOCK_UN);
  if (turn_fd >= 0) close(turn_fd);
  turn_fd = -1;
}

// Fields of every record that describe its group.
struct GroupFacts {
  std::tuple<std::string, std::string> name;  // name and description
  int rank;
  int size;
  int first_global_rank;
  int global_rank_stride;  // -1: the members are not evenly spaced
};

// gloo's work, with the record that NCCL's work makes of the wait for it.
class RecordedWork final : public Work {
 public:
  RecordedWork(c10::intrusive_ptr<Work> work, GroupFacts group, int64_t sequence)
      : Work(group.rank, work->retrieveOpType()),
        work_(std::move(work)),
        group_(std::move(group)),
        sequence_(sequence) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const std::vector<int64_t> no_splits;
    RECORD_PARAM_COMMS(std::make_tuple(sequence_, false), group_.name, group_.rank, std::string("wait"), 0, 0,
                       at::kByte, no_splits, no_splits, group_.first_global_rank, group_.global_rank_stride,
                       group_.size);
    turn(LOCK_UN);
    const bool done = work_->wait(timeout);
    turn(LOCK_EX);
    return done;
  }
  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

 private:
  c10::intrusive_ptr<Work> work_;
  GroupFacts group_;
  int64_t sequence_;
};

int64_t element_count(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

int stride_of(const std::vector<int64_t>& ranks) {
  const int64_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) return -1;
  }
  return static_cast<int>(stride);
}

class RecordingGloo final : public Backend {
 public:
  RecordingGloo(c10::intrusive_ptr<Backend> gloo, const std::vector<int64_t>& global_ranks)
      : Backend(gloo->getRank(), gloo->getSize()),
        gloo_(std::move(gloo)),
        first_global_rank_(global_ranks.empty() ? 0 : static_cast<int>(global_ranks.front())),
        global_rank_stride_(stride_of(global_ranks)) {}

  const std::string getBackendName() const override { return "recording_gloo"; }

  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return recorded("allreduce", tensors, tensors, options.asyncOp,
                    [&] { return gloo_->allreduce(tensors, options); });
  }
  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return recorded("broadcast", tensors, tensors, options.asyncOp,
                    [&] { return gloo_->broadcast(tensors, options); });
  }
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) override {
    return recorded("_allgather_base", {input}, {output}, options.asyncOp,
                    [&] { return gloo_->_allgather_base(output, input, options); });
  }
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) override {
    return recorded("_reduce_scatter_base", {input}, {output}, options.asyncOp,
                    [&] { return gloo_->_reduce_scatter_base(output, input, options); });
  }
  c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions& options) override {
    return recorded("barrier", {}, {}, options.asyncOp, [&] { return gloo_->barrier(options); });
  }

 private:
  template <typename Issue>
  c10::intrusive_ptr<Work> recorded(const char* collective, const Tensors& inputs, const Tensors& outputs,
                                    bool is_async, Issue issue) {
    const GroupFacts group{
        {getGroupUid(), getGroupDesc()}, getRank(), getSize(), first_global_rank_, global_rank_stride_};
    const std::vector<int64_t> no_splits;
    ++sequence_;
    RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
        std::make_tuple(sequence_, false), group.name, inputs, outputs, group.rank, std::string(collective),
        element_count(inputs), element_count(outputs), inputs.empty() ? at::kByte : inputs[0].scalar_type(),
        no_splits, no_splits, group.first_global_rank, group.global_rank_stride, group.size, is_async);
    return c10::make_intrusive<RecordedWork>(issue(), group, sequence_);
  }

  c10::intrusive_ptr<Backend> gloo_;
  int first_global_rank_;
  int global_rank_stride_;
  int64_t sequence_ = 0;
};

c10::intrusive_ptr<Backend> wrap(const c10::intrusive_ptr<Backend>& gloo,
                                 const std::vector<int64_t>& global_ranks) {
  return c10::make_intrusive<RecordingGloo>(gloo, global_ranks);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("wrap", &wrap, "gloo backend, global ranks of its group -> the same backend, recorded");
  module.def("take_turn", &take_turn, "wait for this rank's turn to compute",
             py::call_guard<py::gil_scoped_release>());
  module.def("give_turn", &give_turn, "end turn-taking for this rank");
}
