package headgate;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.HashSet;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.arrow.ArrowConverters$ArrowBatchWithSchemaIterator;
import org.apache.spark.sql.types.StructType;

/**
 * Turns the rows of a partition into Arrow batches of bounded size, in the executor, and gives one byte array for all of them.
 *
 * <pre>
 *     rows (8 bytes)   is cut short (1 byte)   is in a file (1 byte)   the frames, or the path of the file that holds them
 *     frame: length (4 bytes), an Arrow IPC stream of one batch
 * </pre>
 *
 * A task holds at most one batch and `inlineBytes`: whatever is more goes to the file. A partition ends once it has `mostRows`; it is
 * cut short when it, or all files of the answer together, would exceed `mostBytes`.
 *
 * The driver compiles this file with Janino, which Spark brings along: no generics, lambdas or static imports.
 */
public final class PartitionWriter extends scala.runtime.AbstractFunction1 implements java.io.Serializable {

    private static final long BATCH_ROWS = 16384;
    private static final long BATCH_BYTES = 1L << 20;
    /** Bytes between two looks at what other tasks have written. */
    private static final long LOOK_BYTES = 8L << 20;

    private StructType schema;
    private String folder;
    private long mostRows;
    private long mostBytes;
    private int inlineBytes;

    public PartitionWriter limited(StructType schema, String folder, long mostRows, long mostBytes, int inlineBytes) {
        PartitionWriter made = new PartitionWriter();
        made.schema = schema;
        made.folder = folder;
        made.mostRows = mostRows;
        made.mostBytes = mostBytes;
        made.inlineBytes = inlineBytes;
        return made;
    }

    public Object apply(Object rows) {
        try {
            return scala.collection.Iterator$.MODULE$.single(this.written((scala.collection.Iterator) rows));
        } catch (IOException error) {
            throw new UncheckedIOException(error.toString(), error);
        }
    }

    private byte[] written(scala.collection.Iterator rows) throws IOException {
        ArrowConverters$ArrowBatchWithSchemaIterator batches = ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
                rows, this.schema, BATCH_ROWS, BATCH_BYTES, "UTC", true, false);
        ByteArrayOutputStream held = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(held);
        File file = null;
        long count = 0;
        long bytes = 0;
        long lookAt = 0;
        boolean isCut = false;
        try {
            while (count < this.mostRows && batches.hasNext()) {
                byte[] batch = (byte[]) batches.next();
                bytes += batch.length;
                if (bytes > this.mostBytes) {
                    isCut = true;
                    break;
                }
                if (file == null && bytes > this.inlineBytes) {
                    TaskContext task = TaskContext.get();
                    file = new File(this.folder, task.partitionId() + "-" + task.taskAttemptId());
                    out = this.opened(file);
                    held.writeTo(out);
                }
                if (file != null && bytes >= lookAt) {
                    lookAt = bytes + LOOK_BYTES;
                    if (this.writtenByAll() > this.mostBytes) {
                        isCut = true;
                        break;
                    }
                }
                out.writeInt(batch.length);
                out.write(batch);
                count += batches.rowCountInLastBatch();
            }
        } finally {
            out.close();
        }
        byte[] payload = file == null ? held.toByteArray() : file.getPath().getBytes("UTF-8");
        ByteBuffer result = ByteBuffer.allocate(10 + payload.length);
        result.putLong(count);
        result.put((byte) (isCut ? 1 : 0));
        result.put((byte) (file == null ? 0 : 1));
        result.put(payload);
        return result.array();
    }

    private long writtenByAll() {
        File[] files = new File(this.folder).listFiles();
        long sum = 0;
        for (int i = 0; files != null && i < files.length; i++) {
            sum += files[i].length();
        }
        return sum;
    }

    /** A new file in the folder, which is made if need be; both are for their owner alone. */
    private DataOutputStream opened(File file) throws IOException {
        Files.createDirectories(file.toPath().getParent(), permissions("rwx------"));
        HashSet options = new HashSet(Arrays.asList(new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE}));
        return new DataOutputStream(
                Channels.newOutputStream(Files.newByteChannel(file.toPath(), options, permissions("rw-------"))));
    }

    private static FileAttribute[] permissions(String mode) {
        return FileSystems.getDefault().supportedFileAttributeViews().contains("posix")
                ? new FileAttribute[] {PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(mode))}
                : new FileAttribute[0];
    }
}
